"""The HTTP side of one replica: discovery, get, list and watch of Attempts, health and metrics.

Use, as `cli/compose_server.py` does it::

    cache = AttemptCache(feed, clock=clock, chance=random.random)
    app = create_app(
        cache=cache,
        access=AccessStore(database, clock),       # anything that satisfies `AccessSource`
        clock=clock,
        new_id=uuid4,
        chance=random.random,
        version="0.1.0",
        options=ServerOptions(public_url="https://127.0.0.1:8443"),
    )
    await serve(app, sockets=[bound], ssl_context=context)   # returns after a drain, then exit 0

The application starts `cache.run()` and the access follower itself, in ASGI lifespan startup, and
ends them in lifespan shutdown; the caller closes the database afterwards. `serve` handles SIGTERM
and SIGINT (AS-095); sockets are bound by the caller, so that a port in use is its finding.

Decision 1. One chain, `chain.py`, is a pure ASGI application that runs the steps of AS-083 as plain
calls, before routing. Get, list and watch are answered by `hot_path.py`; FastAPI answers the rest,
and has routes of the same paths that call the same handlers. It costs a second routing table, which
a test compares byte for byte; it buys watches and lists without a framework in their way.
"""

from nodus_api.apiserver.access import AccessSource
from nodus_api.apiserver.app import ApiServer, create_app
from nodus_api.apiserver.options import ServerOptions
from nodus_api.apiserver.serving import serve

__all__ = ["AccessSource", "ApiServer", "ServerOptions", "create_app", "serve"]
