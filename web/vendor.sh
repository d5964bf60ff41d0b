#!/bin/sh
# Writes web/static/vendor from the npm packages that package-lock.json pins: make web.
set -eu
cd "$(dirname "$0")"
temp="$(mktemp -d)"
trap 'rm -rf "$temp"' EXIT
cp package.json package-lock.json "$temp"
npm ci --prefix "$temp" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
modules="$temp/node_modules"

rm -rf static/vendor
mkdir -p static/vendor
cp "$modules/htmx.org/dist/htmx.min.js" static/vendor/
{
    echo 'The files in this directory come from these npm packages.'
    for package in htmx.org; do
        version="$(sed -n 's/^ *"version": "\(.*\)".*/\1/p' "$modules/$package/package.json" | head -n 1)"
        printf '\n%s %s\n\n' "$package" "$version"
        cat "$modules/$package/LICENSE"
    done
} | sed 's/[[:space:]]*$//' >static/vendor/LICENSES.txt
chmod 644 static/vendor/*
