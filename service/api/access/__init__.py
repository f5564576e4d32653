"""Who may ask for what: tokens, limits, and what a browser may be made to do.

Face: `Caller`, `caller_of`, `request_id_of`.
"""

from tilewise.service.api.access.caller import ANYONE, CALLER, Caller, caller_of, request_id_of

__all__ = ["ANYONE", "CALLER", "Caller", "caller_of", "request_id_of"]
