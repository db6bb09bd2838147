from trainledger.api.advise import AdviseResult as AdviseResult
from trainledger.api.advise import advise as advise
from trainledger.api.compare import CompareResult as CompareResult
from trainledger.api.compare import compare as compare
from trainledger.api.estimate import estimate as estimate
from trainledger.api.export import export as export
from trainledger.api.fit import FitResult as FitResult
from trainledger.api.fit import fit as fit
from trainledger.api.result import Result as Result
from trainledger.api.search import SearchResult as SearchResult
from trainledger.api.search import search as search
from trainledger.api.trace import TraceResult as TraceResult
from trainledger.api.trace import trace as trace
from trainledger.api.trace import tracing as tracing
from trainledger.base.problems import InputError as InputError
from trainledger.base.problems import TraceError as TraceError

__version__: str
