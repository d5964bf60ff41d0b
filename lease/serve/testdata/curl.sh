# curl.sh SOCKET: joins this host with three cores, asks for three slots, waits for them and frees them,
# with nothing but a shell and curl.
set -eu
umask 077
socket=$1
call() { curl --silent --show-error --fail --unix-socket "$socket" "$@"; }

# The worker is there as long as this curl.
curl --silent --no-buffer --unix-socket "$socket" -d '{"worker":"w1","host":"h1","milli_cores":3000}' http://asplit/v1/workers >worker &
worker=$!

# So is the holder: each line says what it is to know.
mkfifo lines
curl --silent --no-buffer --unix-socket "$socket" -d '{"holder":"script"}' http://asplit/v1/holders >lines &
holder=$!
trap 'kill $worker $holder' EXIT
exec 3<lines

# The token is in a file, not among curl's arguments, which other users can read.
read -r line <&3
printf 'Authorization: Bearer %s\n' "$(expr "$line" : '.*"token":"\([^"]*\)"')" >token

call -H @token -d '{"id":"r1","slots":3}' http://asplit/v1/requests
leases=
for i in 1 2 3; do
	read -r line <&3
	lease=$(expr "$line" : '.*"grant":\([0-9]*\)')
	echo "granted $lease"
	leases="$leases $lease"
done
for lease in $leases; do
	call -H @token -X DELETE "http://asplit/v1/leases/$lease"
	echo "freed $lease"
done
