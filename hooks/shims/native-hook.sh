#!/bin/sh
# attngate-hook: @NAME@
# Written by `attngate install`; `attngate uninstall` puts back what was here before.
interpreter=@INTERPRETER@
hook=@NAME@
case $0 in
    */*) here=${0%/*} ;;
    *) here=. ;;
esac
earlier=$here/$hook.before-attngate

# The hook that was here before, with the same arguments and the same input.
wanted() {
    # git runs no hook that is not executable
    [ -f "$earlier" ] && [ -x "$earlier" ] || return 1
    # pre-commit's own file calls this one when it was installed last: it is at work already
    if [ -n "${PRE_COMMIT_RUNNING_LEGACY-}" ] && grep -q 'pre-commit\.com' "$earlier"; then
        return 1
    fi
}

check() {
    if [ -x "$interpreter" ]; then
        "$interpreter" -I -c '
import sys
try:
    from attngate.hooks.cli import main
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("attngate"):
        raise
    sys.exit(97)
main()' hook "$hook" "$@"
        code=$?
        [ "$code" -eq 97 ] || return "$code"
    fi
    command=$(command -v attngate)
    case $command in
        /*)
            "$command" hook "$hook" "$@"
            return
            ;;
    esac
    [ "$hook" = pre-push ] && cat >/dev/null
    echo "attngate: $hook cannot run: neither $interpreter nor a command on PATH has attngate." >&2
    echo "  Install it with \`pip install attngate\` and run \`attngate install\` here;" >&2
    echo "  to do without it, delete $0 (or put back $earlier)." >&2
    return 1
}

if ! wanted; then
    check "$@"
    exit
fi
case $hook in
    pre-push)
        # A dot keeps the line feeds at the end.
        input=$(cat && echo .)
        input=${input%.}
        printf %s "$input" | "$earlier" "$@" || exit
        printf %s "$input" | check "$@"
        ;;
    post-commit)
        "$earlier" "$@"
        check "$@"
        ;;
    *)
        "$earlier" "$@" || exit
        check "$@"
        ;;
esac
