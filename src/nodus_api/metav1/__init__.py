"""How does the Kubernetes API speak: the wire machinery of any resource, without a server.

Decision 1: the wire is values in, values or bytes out. Every branch of negotiation,
   options, selectors, tokens, frames and errors is tested without a socket, and the hot
   path and FastAPI give the same bytes because they call the same code. It costs writing
   by hand what a framework would half do: FastAPI's validation, its 422 and its OpenAPI 3.1
   are not the protocol's.
Decision 2: the shared schemas have the upstream names and structure in the OpenAPI 3.0
   document, which nobody merges, and names of our own in the Swagger 2.0 one, which
   kube-apiserver merges with its own: the descriptions are ours, so one name for two texts
   would make it rename them. It costs a rename in one place of the generator.
"""

from nodus_api.metav1.errors import APIError
from nodus_api.metav1.list_options import ListOptions
from nodus_api.metav1.status import Status

__all__ = ["APIError", "ListOptions", "Status"]
