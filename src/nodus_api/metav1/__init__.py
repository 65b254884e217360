"""How does the Kubernetes API speak: the wire machinery of any resource, without a server.

Decision 3. **Pure wire code.** Negotiation, options, selectors, tokens, frames and errors
are functions from values to values or bytes, so that every branch is tested without a
socket, and the hot path and FastAPI give the same bytes because they call the same code.
It costs writing by hand what a framework would half do: FastAPI's validation, its 422 and
its OpenAPI 3.1 are not the protocol's.
"""

from nodus_api.metav1.errors import APIError
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.status import Status

__all__ = ["APIError", "ListOptions", "Status"]
