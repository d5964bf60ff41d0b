package keeper

import (
	"syscall"
	"unsafe"
)

// What package syscall does to all threads is done to this one alone here.

func setEffective(call uintptr, id uint32) error {
	const same = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(call, same, uintptr(id), same); errno != 0 {
		return errno
	}
	return nil
}

func setGroups(groups []uint32) error {
	var first *uint32
	if len(groups) > 0 {
		first = &groups[0]
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(first)), 0); errno != 0 {
		return errno
	}
	return nil
}
