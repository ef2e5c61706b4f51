#!/bin/busybox sh
# Prepares the machine, then runs the commands that come in by the first serial port, one on a line. Each line of
# a command's output goes out behind a "|", then its exit status behind a "=".
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin:/opt/crosslane HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
while read -r module; do
	insmod "/lib/modules/$module.ko"
done </lib/modules/list

number=$(sed 's/.*crosslane\.host=\([0-9]*\).*/\1/' /proc/cmdline)
hostname "host$number"
ip link set lo up
ip address add "192.0.2.$number/24" dev eth0
ip link set eth0 up

# The memory that both machines have: BAR 2 of the device with ivshmem's number.
for device in /sys/bus/pci/devices/*; do
	if [ "$(cat "$device/vendor") $(cat "$device/device")" = "0x1af4 0x1110" ]; then
		ln -s "$device" /run/ivshmem
	fi
done

port=/dev/ttyS0
stty -F $port raw -echo
exec <$port >$port
echo ready
while read -r command; do
	sh -c "$command" </dev/null >/tmp/output 2>&1
	status=$?
	sed 's/^/|/' /tmp/output
	printf '\n=%s\n' $status
done
poweroff -f
