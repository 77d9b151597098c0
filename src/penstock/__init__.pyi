from penstock.api.connect import connect_to as connect_to
from penstock.api.functions import doctor as doctor
from penstock.api.functions import load as load
from penstock.api.functions import loads as loads
from penstock.api.functions import rejects as rejects
from penstock.api.functions import repair as repair
from penstock.api.functions import resume as resume
from penstock.api.functions import retry as retry
from penstock.api.functions import temp_usage as temp_usage
from penstock.api.loader import Loader as Loader
from penstock.errors import AwsError as AwsError
from penstock.errors import DataError as DataError
from penstock.errors import Interrupted as Interrupted
from penstock.errors import LabError as LabError
from penstock.errors import PenstockError as PenstockError
from penstock.errors import ServerError as ServerError
from penstock.errors import SourceError as SourceError
from penstock.errors import TargetError as TargetError
from penstock.errors import UsageError as UsageError
from penstock.model.load.outcome import LoadOutcome as LoadOutcome
from penstock.model.load.outcome import LoadProgress
from penstock.model.source.dialect import DialectOptions

Dialect = DialectOptions
Progress = LoadProgress
__version__: str
