#include "engine/comm/testing/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kPeerFd = 3;
constexpr size_t kLineMax = 1 << 16;

}  // namespace

RankProcess::RankProcess(const std::string& tls) {
  int fds[2];
  SKEIN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  // dup2 onto the same number would keep close-on-exec, so the peer's end first moves away.
  const int far = fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
  close(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, far, kPeerFd);
  char path[] = "engine/comm/testing/rank";
  std::string argument = tls;
  char* const argv[] = {path, argument.data(), nullptr};
  const int error = posix_spawn(&pid_, path, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(far);
  SKEIN_CHECK_MSG(error == 0, "engine/comm/testing/rank must be in the test's data");
  stream_ = fdopen(fds[0], "r+");
  SKEIN_CHECK(stream_ != nullptr);
  address_ = Hear();
}

RankProcess::~RankProcess() {
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::fclose(stream_);
}

void RankProcess::Signal(int number) { kill(pid_, number); }

void RankProcess::Tell(const std::string& line) {
  std::fseek(stream_, 0, SEEK_CUR);
  std::fprintf(stream_, "%s\n", line.c_str());
  std::fflush(stream_);
}

std::string RankProcess::Hear() {
  std::string line(kLineMax, '\0');
  if (std::fgets(line.data(), static_cast<int>(line.size()), stream_) == nullptr) return "gone";
  return line.substr(0, line.find('\n'));
}

std::string RankProcess::Join(uint64_t id, std::span<const std::string> addresses, int rank) {
  std::ostringstream line;
  line << "join " << id << " " << rank;
  for (const std::string& address : addresses) line << " " << address;
  Tell(line.str());
  return Hear();
}

void RankProcess::Work(int rounds, int deadline_ms) {
  Tell("work " + std::to_string(rounds) + " " + std::to_string(deadline_ms));
}

void RankProcess::AwaitFirstRound() { SKEIN_CHECK(Hear() == "first"); }

std::string RankProcess::AwaitEnd() {
  std::string line = Hear();
  if (line == "first") line = Hear();
  return line;
}

}  // namespace skein::engine
