from penstock.api.connect import connect_to as connect_to
from penstock.api.functions import doctor as doctor
from penstock.api.functions import load as load
from penstock.api.functions import loads as loads
from penstock.api.functions import rejects as rejects
from penstock.api.functions import repair as repair
from penstock.api.functions import resume as resume
from penstock.api.functions import retry as retry
from penstock.api.functions import temp_usage as temp_usage
from penstock.api.functions import undo as undo
from penstock.api.functions import verify as verify
from penstock.core.errors import AwsError as AwsError
from penstock.core.errors import DataError as DataError
from penstock.core.errors import Interrupted as Interrupted
from penstock.core.errors import LabError as LabError
from penstock.core.errors import PenstockError as PenstockError
from penstock.core.errors import ServerError as ServerError
from penstock.core.errors import SourceError as SourceError
from penstock.core.errors import TargetError as TargetError
from penstock.core.errors import UsageError as UsageError
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import LoadJob as LoadJob
from penstock.core.values.job import TargetJob as TargetJob
from penstock.core.values.names import parse_table_name as parse_table_name
from penstock.loading.loader import Loader as Loader
from penstock.loading.values.outcome import LoadOutcome as LoadOutcome
from penstock.loading.values.outcome import LoadProgress

Dialect = DialectOptions
Progress = LoadProgress
__version__: str
