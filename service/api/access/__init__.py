"""Access control: tokens, request limits, and protection against requests of other web pages."""

from tilewise.service.api.access.caller import ANYONE, CALLER, Caller, caller_of, request_id_of

__all__ = ["ANYONE", "CALLER", "Caller", "caller_of", "request_id_of"]
