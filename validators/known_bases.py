"""Members of base classes outside the plugin and the target that classes there usually have.

Only what is listed here lets a rule say that an attribute does not exist; a class with any other
foreign base is never complete.
"""

from __future__ import annotations

import builtins
import enum
from functools import cache

# dir(torch.nn.Module) of torch 2.13, older names included. Parameters, buffers and submodules come
# on top: they are what a class assigns or registers.
_NN_MODULE = frozenset(
    [
        "T_destination",
        "_apply",
        "_backward_hooks",
        "_backward_pre_hooks",
        "_buffers",
        "_call_impl",
        "_compiled_call_impl",
        "_forward_hooks",
        "_forward_hooks_always_called",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_get_backward_hooks",
        "_get_backward_pre_hooks",
        "_get_name",
        "_is_full_backward_hook",
        "_load_from_state_dict",
        "_load_state_dict_post_hooks",
        "_load_state_dict_pre_hooks",
        "_maybe_warn_non_full_backward_hook",
        "_modules",
        "_named_members",
        "_non_persistent_buffers_set",
        "_parameters",
        "_register_load_state_dict_pre_hook",
        "_register_state_dict_hook",
        "_replicate_for_data_parallel",
        "_save_to_state_dict",
        "_slow_forward",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_version",
        "_wrapped_call_impl",
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_module",
        "register_parameter",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
    ]
)
_ENUM = frozenset(dir(enum.Enum)) | {
    "name", "value", "_name_", "_value_", "_missing_", "_generate_next_value_", "__members__",
    "_member_map_", "_value2member_map_", "_member_names_", "_ignore_", "_order_",
}  # fmt: skip
_NAMED_TUPLE = frozenset(dir(tuple)) | {
    "_asdict", "_replace", "_fields", "_make", "_field_defaults",
}  # fmt: skip
_OBJECT = frozenset(dir(object)) | {
    "__dict__",
    "__annotations__",
    "__slots__",
    "__name__",
    "__mro__",
}
_MEMBERS = {
    "abc.ABC": frozenset(["register"]),
    "typing.Generic": frozenset(["__orig_bases__", "__parameters__"]),
    "typing.Protocol": frozenset(),
    "typing_extensions.Protocol": frozenset(),
    "torch.nn.Module": _NN_MODULE,
    "torch.nn.modules.module.Module": _NN_MODULE,
    "enum.Enum": _ENUM,
    "enum.IntEnum": _ENUM | frozenset(dir(int)),
    "enum.StrEnum": _ENUM | frozenset(dir(str)),
    "enum.Flag": _ENUM,
    "enum.IntFlag": _ENUM | frozenset(dir(int)),
    "typing.NamedTuple": _NAMED_TUPLE,
}


@cache
def members_of_known(path: str) -> frozenset[str] | None:
    """Attributes of a foreign base class by its dotted path, `object`'s included; None if unknown."""
    if path in _MEMBERS:
        return _MEMBERS[path] | _OBJECT
    top, _, name = path.rpartition(".")
    found = getattr(builtins, name, None) if top == "builtins" else None
    return frozenset(dir(found)) | _OBJECT if isinstance(found, type) else None
