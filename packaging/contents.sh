#!/bin/sh
# Lists a directory's files in nfpm's format: packaging/contents.sh DIR
set -eu
echo 'contents:'
cd "$1"
# rpm removes only the directories that a package owns, dpkg those that are empty.
case $1 in */rpm)
    find . -type d -path '*/allotment*' | LC_ALL=C sort | while read -r path; do
        printf -- '- {dst: "%s", type: dir, file_info: {owner: root, group: root, mode: 0755}}\n' "${path#.}"
    done ;;
esac
find . -type f -o -type l | LC_ALL=C sort | while read -r path; do
    path=${path#.}
    if [ -h ".$path" ]; then
        printf -- '- {src: "%s", dst: "%s", type: symlink}\n' "$(readlink ".$path")" "$path"
        continue
    fi
    type=
    case $path in /etc/*) type=', type: config|noreplace' ;; esac
    printf -- '- {src: "%s", dst: "%s"%s, file_info: {owner: root, group: root, mode: 0%s}}\n' "$1$path" "$path" "$type" "$(stat -c %a ".$path")"
done
