"""The objects of the HTTP API, each declared once, as frozen dataclasses.

The client reads them; the service derives its models from them (`tilewise.service.api.schemas`).
Nothing here imports pydantic or NumPy.
"""
