"""What Triton imports at its start, as one of its backends: nothing, unless ``TILESIM`` is set.

Triton has no other entry point that is there before a program launches its first kernel. As a
backend this one is never active and supports no target. With ``TILESIM`` set it hooks into the
first kernel that is loaded (`tilesim.triton.first_launch`), and only then is tilesim imported. This
package lies outside of it, as whatever went wrong here would go wrong in every program that uses
Triton: it imports nothing else, and does not depend on what Triton wants of a backend.
"""
