package task

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

func timeOf(second int64) time.Time { return time.Unix(second, 0) }

// withChecksums returns data with correct checksums, so that a fuzzer gets past them.
func withChecksums(data []byte) []byte {
	if len(data) < trailerSize {
		return data
	}
	data = append([]byte(nil), data...)
	trailer := data[len(data)-trailerSize:]
	index, end := binary.LittleEndian.Uint64(trailer), uint64(len(data)-trailerSize)
	if index <= end {
		binary.LittleEndian.PutUint32(trailer[48:], crc32.ChecksumIEEE(data[index:end]))
	}
	binary.LittleEndian.PutUint32(trailer[52:], crc32.ChecksumIEEE(trailer[:52]))
	copy(trailer[56:], magic)
	return data
}
