"""The loader of a compiled network, which needs NumPy alone; written into its folder as well."""
