# worker.sh CORES: does tasks of asplit serve on a host of the queue, which it reaches by TLS alone, each
# for a fifth of a second.
set -eu
umask 077
dir=$(mktemp -d)
call() { curl --silent --show-error --cacert "$ASPLIT_CERTIFICATE" "$@"; }

mkfifo "$dir/lines"
call --no-buffer --keepalive-time 5 -H @"$ASPLIT_HEADER" \
	-d "{\"worker\":\"$ASPLIT_WORKER\",\"host\":\"$SLURMD_NODENAME\",\"milli_cores\":${1}000}" "$ASPLIT_URL/v1/workers" >"$dir/lines" &
trap 'kill '$!' 2>/dev/null || true; rm -rf "$dir"' EXIT
exec 3<"$dir/lines"
read -r line <&3
printf 'Authorization: Bearer %s\n' "$(expr "$line" : '.*"token":"\([^"]*\)"')" >"$dir/token"

while read -r line <&3; do
	case $line in
	*'"task":'*) ;;
	*'"release":'*) exit ;;
	*) continue ;;
	esac
	lease=$(expr "$line" : '.*"lock":\([0-9]*\)')
	task=$(expr "$line" : '.*"task":"\([^"]*\)"')
	{
		sleep 0.2
		until call -H @"$dir/token" --max-time 10 -d "{\"lease\":$lease,\"result\":\"$task on $SLURMD_NODENAME\"}" "$ASPLIT_URL/v1/results"; do
			sleep 1 # the link is cut; a result that arrived is refused when it comes again
		done
	} &
done
