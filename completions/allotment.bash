# Completion for bash. Made by make generate; do not edit.
#
# The programs answer themselves, the one that PATH has under the name: a
# program in an untrusted directory is not run by pressing the tab key.

_allotment() {
    local line known='' cur="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) known=${line#:} ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(command "${1##*/}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
    [[ $cur == = ]] && cur=''
    case $known in
        files) _allotment_add -f ;;
        directories) _allotment_add -d ;;
        users) _allotment_add -u ;;
        groups) _allotment_add -g ;;
        command*)
            if declare -F _command_offset >/dev/null; then
                _command_offset "${known#command }"
            elif ((COMP_CWORD == ${known#command })); then
                _allotment_add -c
            else
                _allotment_add -f
            fi
            ;;
    esac
}

_allotment_add() { # what compgen is asked for, beside what is there already
    [[ $1 == -[fdc] ]] && compopt -o filenames
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(compgen "$1" -- "$cur")
}

complete -o nosort -F _allotment pba asub ajobs ahosts aqueues akill astop aresume arequeue amod apeek aswitch ahist atop abot asplit astate miniqd allotd ahostd 2>/dev/null ||
    complete -F _allotment pba asub ajobs ahosts aqueues akill astop aresume arequeue amod apeek aswitch ahist atop abot asplit astate miniqd allotd ahostd
