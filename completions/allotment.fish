# Completion for fish. Made by make generate; do not edit.
#
# The programs answer themselves, the one that PATH has under the name: a
# program in an untrusted directory is not run by pressing the tab key.

function __allotment
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '.*/' '' -- $words[1])
    for line in (command $program __complete fish $words[2..-1] "$current" 2>/dev/null </dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$current"
            case ':directories'
                __fish_complete_directories "$current"
            case ':users'
                __fish_complete_users
            case ':groups'
                __fish_complete_groups
            case ':command *'
                set -l from (math (string replace ':command ' '' -- $line) + 1)
                complete -C (string join ' ' -- (string escape -- $words[$from..-1]) "$current")
            case '*'
                echo $line
        end
    end
end

for program in pba asub ajobs ahosts aqueues akill astop aresume arequeue amod apeek aswitch ahist atop abot asplit astate miniqd allotd ahostd
    complete -c $program -f -a '(__allotment)'
end
