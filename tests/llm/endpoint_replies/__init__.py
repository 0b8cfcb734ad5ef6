"""How products reply where a plain client goes wrong: the rows of the guide's matrix, and more.

The forms are those of the named documentation, source or issue thread; names and numbers are made
up. A source `owner/repository#number` is an issue or pull request on GitHub.
"""

from tests.llm.endpoint_replies import further_reports, hosted_services, local_servers

CASES = [*local_servers.CASES, *hosted_services.CASES, *further_reports.CASES]
