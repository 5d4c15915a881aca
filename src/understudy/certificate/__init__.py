"""The certificate of a run, made from its `Statement` and the checksums of files alone: what ran, never what was
requested, and no figure that was computed on real rows without noise.

`markdown` writes it for people, `json` for machines and `page` as a web page; `facts` has the sentences about public
facts that a statement carries, and `meaning` says what the guarantee means for one unit.
"""

from understudy.certificate.facts import estimated_facts as estimated_facts
from understudy.certificate.facts import estimation_notes as estimation_notes
from understudy.certificate.facts import public_facts as public_facts
from understudy.certificate.facts import size_warnings as size_warnings
from understudy.certificate.json import NOT_COVERED as NOT_COVERED
from understudy.certificate.json import from_json as from_json
from understudy.certificate.json import not_covered as not_covered
from understudy.certificate.json import plan_statement as plan_statement
from understudy.certificate.json import plan_to_json as plan_to_json
from understudy.certificate.json import standalone_epsilon as standalone_epsilon
from understudy.certificate.json import statement_conditions as statement_conditions
from understudy.certificate.json import to_json as to_json
from understudy.certificate.markdown import escape_markdown as escape_markdown
from understudy.certificate.markdown import escape_sentence as escape_sentence
from understudy.certificate.markdown import head_facts as head_facts
from understudy.certificate.markdown import to_markdown as to_markdown
from understudy.certificate.markdown import verdict as verdict
from understudy.certificate.meaning import statement_meaning as statement_meaning
from understudy.privacy.accounting.statement import round_up as round_up
