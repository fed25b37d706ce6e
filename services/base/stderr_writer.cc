#include "services/base/stderr_writer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace skein::services {

// O_NONBLOCK is a property of the open file, which stderr shares with other processes: a pipe is
// opened anew for this one. A socket has a flag for each call. A file or a terminal just takes it.
StderrWriter::StderrWriter() : descriptor_(STDERR_FILENO) {
  struct stat status {};
  if (fstat(STDERR_FILENO, &status) != 0) return;
  is_socket_ = S_ISSOCK(status.st_mode);
  if (!S_ISFIFO(status.st_mode)) return;
  const int own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (own >= 0) descriptor_ = own;
}

StderrWriter::~StderrWriter() {
  if (descriptor_ != STDERR_FILENO) close(descriptor_);
}

long StderrWriter::Attempt(std::string_view text) const {
  ssize_t written = 0;
  do {
    written = is_socket_ ? send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                         : write(descriptor_, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  return written;
}

bool StderrWriter::Write(std::string_view text) {
  if (!rest_.empty()) {
    const long written = Attempt(rest_);
    if (written > 0) rest_.erase(0, static_cast<size_t>(written));
    if (!rest_.empty()) return false;
  }
  const long written = Attempt(text);
  if (written < 0) return false;
  rest_ = text.substr(static_cast<size_t>(written));
  return true;
}

}  // namespace skein::services
