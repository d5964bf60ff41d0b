package traffic

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/allotment-hpc/allotment/agent/measure"
)

// Offsets in struct __sk_buff (include/uapi/linux/bpf.h).
const (
	skbLength   = 0
	skbProtocol = 16
	skbIfindex  = 40
)

// Registers. A call takes arguments in some, and keeps packet and those after it.
const (
	result asm.Register = iota
	arg1
	arg2
	arg3
	arg4
	_
	packet
	payload // at first the length of all
	kind
	headers
)

// Places on the program's stack: the header of IP, the key of the table, and a byte of TCP's.
const (
	header  = -40
	keySize = 4 + 16
	keyAt   = -60 // the address in it is stored by eight bytes: Linux 6.1 refuses parts of them
	address = keyAt + 4
	tcpByte = -72
)

// The interface lo is the first of each network namespace.
const loopback = 1

// networkOrder is a 16-bit number as the kernel stores it in network order, on a host of
// either order.
func networkOrder(n uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)))
}

// mapped makes of an address of IPv4, as it is in a header, the second half of the one of IPv6
// that stands for it, ::ffff:a.b.c.d, in arg1; arg2 is lost.
func mapped() asm.Instructions {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return asm.Instructions{
			asm.LSh.Imm(arg1, 32),
			asm.Mov.Imm(arg2, 0xffff),
			asm.LSh.Imm(arg2, 16),
			asm.Or.Reg(arg1, arg2),
		}
	}
	return asm.Instructions{
		asm.Mov.Imm(arg2, 0xffff),
		asm.LSh.Imm(arg2, 32),
		asm.Or.Reg(arg1, arg2),
	}
}

// instructions is the program: it adds the payload of a packet to the counter of its class, and
// lets each packet pass. At a control group's hook a packet begins with the header of IP.
func instructions(networks, counts int, egress bool) asm.Instructions {
	v4, v6 := int16(12), int16(8) // the sender's address
	if egress {
		v4, v6 = 16, 24
	}
	load := func(length int32, into int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(arg1, packet),
			asm.Mov.Reg(arg3, asm.RFP),
			asm.Add.Imm(arg3, into),
			asm.Mov.Imm(arg4, length),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(result, 0, "pass"),
		}
	}
	var p asm.Instructions
	add := func(more ...asm.Instruction) { p = append(p, more...) }

	add(
		asm.Mov.Reg(packet, arg1),
		asm.LoadMem(payload, packet, skbLength, asm.Word),
		asm.StoreImm(asm.RFP, keyAt, 128, asm.Word),
		asm.LoadMem(kind, packet, skbProtocol, asm.Word),
		asm.JEq.Imm(kind, networkOrder(0x0800), "v4"),
		asm.JEq.Imm(kind, networkOrder(0x86dd), "v6"),
		asm.Ja.Label("pass"),
	)
	// headers becomes the length of all of them, kind the protocol in the packet.
	add(asm.Mov.Imm(arg2, 0).WithSymbol("v4"))
	add(load(20, header)...)
	add(
		asm.LoadMem(headers, asm.RFP, header, asm.Byte),
		asm.And.Imm(headers, 15),
		asm.LSh.Imm(headers, 2),
		asm.Mov.Imm(arg1, 0),
		asm.StoreMem(asm.RFP, address, arg1, asm.DWord),
		asm.LoadMem(arg1, asm.RFP, header+v4, asm.Word),
	)
	add(mapped()...)
	add(
		asm.StoreMem(asm.RFP, address+8, arg1, asm.DWord),
		asm.LoadMem(kind, asm.RFP, header+9, asm.Byte),
		asm.Ja.Label("transport"),
	)
	add(asm.Mov.Imm(arg2, 0).WithSymbol("v6"))
	add(load(40, header)...)
	add(asm.Mov.Imm(headers, 40))
	for i := int16(0); i < 16; i += 8 {
		add(
			asm.LoadMem(arg1, asm.RFP, header+v6+i, asm.DWord),
			asm.StoreMem(asm.RFP, address+i, arg1, asm.DWord),
		)
	}
	add(asm.LoadMem(kind, asm.RFP, header+6, asm.Byte))
	add(
		asm.JEq.Imm(kind, 6, "tcp").WithSymbol("transport"),
		asm.JNE.Imm(kind, 17, "payload"),
		asm.Add.Imm(headers, 8), // UDP's header
		asm.Ja.Label("payload"),
		asm.Mov.Reg(arg2, headers).WithSymbol("tcp"),
		asm.Add.Imm(arg2, 12),
	)
	add(load(1, tcpByte)...)
	add(
		asm.LoadMem(arg1, asm.RFP, tcpByte, asm.Byte),
		asm.RSh.Imm(arg1, 4),
		asm.LSh.Imm(arg1, 2),
		asm.Add.Reg(headers, arg1),
		asm.JLE.Reg(payload, headers, "pass").WithSymbol("payload"),
		asm.Sub.Reg(payload, headers),
	)
	// kind becomes the class.
	add(
		asm.Mov.Imm(kind, int32(measure.Loopback)),
		asm.LoadMem(arg1, packet, skbIfindex, asm.Word),
		asm.JEq.Imm(arg1, loopback, "count"),
		asm.Mov.Imm(kind, int32(measure.Outside)),
		asm.LoadMapPtr(arg1, networks),
		asm.Mov.Reg(arg2, asm.RFP),
		asm.Add.Imm(arg2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(result, 0, "count"),
		asm.LoadMem(kind, result, 0, asm.Word),
		asm.LoadMapPtr(arg1, counts).WithSymbol("count"),
		asm.Mov.Imm(arg2, 0),
		asm.FnGetLocalStorage.Call(),
	)
	// The verifier takes no computed index into the counters without CAP_PERFMON.
	for class := range int32(measure.NetworkClasses) {
		next := fmt.Sprintf("not %d", class)
		add(
			asm.JNE.Imm(kind, class, next),
			asm.AddAtomic.Mem(result, payload, asm.DWord, int16(8*class)),
			asm.Mov.Imm(arg1, 0).WithSymbol(next),
		)
	}
	add(
		asm.Mov.Imm(result, 1).WithSymbol("pass"),
		asm.Return(),
	)
	return p
}
