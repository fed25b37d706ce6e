// How a listening socket stops without resetting a client. Internal to services/http.
#pragma once

namespace skein::services::http {

// From now on the kernel drops the first packet (SYN) of each new connection to `listening_socket`,
// so that its client sends it again a second later, and then meets another process or a closed
// port. Handshakes that have begun still end, and connections go on. Without it, a client whose
// handshake ends between the last accept and the close would be reset. False: the kernel does not
// let it, and new connections are still taken. Any thread.
bool DropNewHandshakes(int listening_socket);

}  // namespace skein::services::http
