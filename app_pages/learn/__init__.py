"""The lessons, one page each; they are run by Streamlit, not imported."""
