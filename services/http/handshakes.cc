#include "services/http/handshakes.h"

#include <linux/filter.h>
#include <sys/socket.h>

namespace skein::services::http {

// The kernel shows a filter of a TCP socket each packet from the TCP header on, and also those that
// it finds a listening socket for. Accepted connections inherit the filter; no packet of theirs has
// SYN without ACK.
bool DropNewHandshakes(int listening_socket) {
  constexpr unsigned kFlagsOffset = 13, kSyn = 0x02, kAck = 0x10;
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlagsOffset),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kSyn | kAck),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSyn, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),            // drop
      BPF_STMT(BPF_RET | BPF_K, 0xffffffffU),  // keep all bytes
  };
  const sock_fprog program{sizeof code / sizeof *code, code};
  return ::setsockopt(listening_socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) ==
         0;
}

}  // namespace skein::services::http
