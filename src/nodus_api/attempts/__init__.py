"""What does an Attempt look like on the wire: its types, its document, its table.

Decision 1: the writer makes the document. The scheduler renders an Attempt once, in the
   transaction that changes it, and every replica serves those bytes with the resourceVersion
   spliced in. One place decides what is shown, and no reader parses to serve. It costs a
   republish of old objects when a field is added.
"""

from nodus_api.attempts.projection import HEAD, RenderedAttempt, preview, render, splice

__all__ = ["HEAD", "RenderedAttempt", "preview", "render", "splice"]
