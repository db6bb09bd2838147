from trainledger.api.estimate import estimate as estimate
from trainledger.api.result import Result as Result
from trainledger.base.problems import InputError as InputError

__version__: str
