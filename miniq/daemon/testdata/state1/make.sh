#!/bin/sh
# Makes state1.tar.gz anew: the state directory of a miniqd of format 1, killed
# in the middle of its work, and known.json, what it had said of every job.
#   miniq/daemon/testdata/state1/make.sh [COMMIT]
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
commit="${1:-0b70bb6}" # the last one before format 2
work="$(mktemp -d)"
tree="$work/tree"
trap 'git -C "$here" worktree remove --force "$tree"; rm -rf "$work"' EXIT
git -C "$here" worktree add --quiet --detach "$tree" "$commit"
mkdir "$tree/cmd/makestate" "$work/bin" "$work/home"
sed '/^\/\/go:build ignore$/d' "$here/make.go" >"$tree/cmd/makestate/main.go"
(cd "$tree" && go build -o "$work/bin/" ./cmd/miniqd ./cmd/miniq-keeper ./cmd/makestate)
umask 022
printf 'miniq: {nodes: ["n1:4:4G", "n2:2:2G"]}\n' >"$work/home/config.yaml"
"$work/bin/makestate" "$work/home" "$work/bin"
cd "$work/home"
tar --sort=name --owner=0 --group=0 --numeric-owner --exclude='*.sock' --exclude='*.log' -c miniq known.json | gzip -9n >"$here/state1.tar.gz"
tar -tvzf "$here/state1.tar.gz"
