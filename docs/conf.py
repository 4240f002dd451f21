"""How Sphinx builds the guide; the API reference beside it is pydoctor's."""

project = "rmqha"
author = "The rmqha authors"
project_copyright = "2026, The rmqha authors"

html_theme = "furo"
html_title = "rmqha"
html_show_sphinx = False

# The page that a test run writes and the one with the request codes are Markdown, which a
# forge shows as well.
extensions = ["myst_parser"]

exclude_patterns = ["_build"]
# Every reference must lead somewhere; `make docs` turns warnings into errors.
nitpicky = True
default_role = "literal"
