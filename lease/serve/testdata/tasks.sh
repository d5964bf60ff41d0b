# tasks.sh SOCKET: a worker of two cores that counts the letters of each task, with nothing but a shell
# and curl. It ends when it is released.
set -eu
umask 077
socket=$1

mkfifo lines
curl --silent --no-buffer --unix-socket "$socket" -d '{"worker":"w1","host":"h1","milli_cores":2000}' http://asplit/v1/workers >lines &
trap 'kill $! 2>/dev/null || true' EXIT
exec 3<lines
read -r line <&3
printf 'Authorization: Bearer %s\n' "$(expr "$line" : '.*"token":"\([^"]*\)"')" >token

while read -r line <&3; do
	case $line in
	*'"task":'*) ;;
	*'"release":'*) exit ;;
	*) continue ;;
	esac
	lease=$(expr "$line" : '.*"lock":\([0-9]*\)')
	task=$(expr "$line" : '.*"task":"\([^"]*\)"')
	curl --silent --show-error --unix-socket "$socket" -H @token -d "{\"lease\":$lease,\"result\":\"${#task} letters\"}" http://asplit/v1/results
done
