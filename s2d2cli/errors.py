"""Errors that a user can mend. The command line prints each as one sentence and leaves with code 2
(4 where an extra is missing).

S2D2Error
├── ConfigError       a setting is unknown, out of range or does not fit another
│   └── BusyError     another process is writing this run
├── MissingExtraError an optional package is not installed (exit code 4)
├── PromptError       a prompt is empty, too long or cannot be read
├── CheckpointError   a model folder or hub id is missing, incomplete or of another family
├── DecodeError       a model gives scores that are no numbers
├── TaskDataError     benchmark data are missing, changed or malformed
└── SandboxError      generated code may not or cannot be run here
"""


class S2D2Error(Exception):
    """Base of all errors whose message says what must hold, what came and what to do."""

    exit_code = 2


class ConfigError(S2D2Error): ...


class BusyError(ConfigError): ...


class MissingExtraError(S2D2Error):
    exit_code = 4


class PromptError(S2D2Error): ...


class CheckpointError(S2D2Error): ...


class DecodeError(S2D2Error): ...


class TaskDataError(S2D2Error): ...


class SandboxError(S2D2Error): ...
