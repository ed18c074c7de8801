"""Learning on the fly: the engine is called only where the model is uncertain."""

from __future__ import annotations
