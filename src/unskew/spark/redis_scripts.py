"""Scripts that write a version to Redis, and look there first whether they may.

What they compare is compared in Redis itself: a driver that was given up may still be writing. The
hash ``NAME:version`` has ``query`` and ``done``, whose versions these are and the last one that is
complete; while one is written also ``part ATTEMPT``, how many scripts of that attempt have written.

A Redis that was lost between two scripts, and one behind it that has taken its place, has fewer of
them than were acknowledged: the next one finds that out, and the version is written again.
"""

from __future__ import annotations

GAP = -1
"""Answer: an earlier script of the attempt is missing. Others are 1, written; 0, the version is
complete already; text, the query that the names are of; and in a list the last version that is
complete, where a later one has to be."""

_GUARD = f"""
local query = redis.call('HGET', KEYS[1], 'query')
if query and query ~= ARGV[1] then return query end
local done = tonumber(redis.call('HGET', KEYS[1], 'done') or '-1')
if done >= tonumber(ARGV[2]) then return 0 end
if done < tonumber(ARGV[3]) then return {{done}} end
local attempt = 'part ' .. ARGV[4]
local part = tonumber(redis.call('HGET', KEYS[1], attempt) or '0')
if part ~= tonumber(ARGV[5]) then return {GAP} end
"""

# A script that fails is not undone: it counts after it has written.
WRITE = f"""{_GUARD}
redis.call('HSET', KEYS[2], unpack(ARGV, 6))
redis.call('HSET', KEYS[1], 'query', ARGV[1], attempt, part + 1)
return 1
"""
"""Of ``NAME:version`` and a hash, with query, version, the version before, attempt, the number of
scripts of it before this one, and fields and values in turn."""

DONE = f"""{_GUARD}
redis.call('HSET', KEYS[1], 'query', ARGV[1], 'done', ARGV[2])
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, 5) == 'part ' then redis.call('HDEL', KEYS[1], field) end
end
return 1
"""
"""Of ``NAME:version``, with the same but for fields and values."""
