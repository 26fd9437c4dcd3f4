"""State that can move: sorted runs in files that are never overwritten, named by manifests."""

from unskew.state.checkpoint import Checkpoint, Spec
from unskew.state.manifest import Manifest, Run

__all__ = ["Checkpoint", "Manifest", "Run", "Spec"]
