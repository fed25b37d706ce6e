#include "engine/transport/testing_target.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "engine/base/check.h"

extern char** environ;

namespace skein::engine {
namespace {

constexpr int kPeerFd = 3;

struct Request {
  char what = 0;  // 'd'escribe, 'r'ead, 'w'rite
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

bool SendAll(int fd, const void* data, size_t bytes) {
  for (auto* p = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  for (auto* p = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(fd, p, bytes, 0);
    if (n <= 0) return false;
    p += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool SendString(int fd, const std::string& text) {
  const uint64_t bytes = text.size();
  return SendAll(fd, &bytes, sizeof bytes) && SendAll(fd, text.data(), bytes);
}

std::string ReceiveString(int fd) {
  uint64_t bytes = 0;
  if (!ReceiveAll(fd, &bytes, sizeof bytes)) return "";
  std::string text(bytes, '\0');
  return ReceiveAll(fd, text.data(), bytes) ? text : "";
}

class ProcessTarget : public TestingTarget {
 public:
  ProcessTarget(pid_t pid, int fd) : pid_(pid), fd_(fd) {}

  ~ProcessTarget() override {
    Continue();
    close(fd_);  // end of file: the process leaves
    Reap();
  }

  std::string Describe() override { return Ask({'d', 0, 0, 0}, ""); }
  std::string Read(size_t region, size_t offset, size_t bytes) override {
    return Ask({'r', region, offset, bytes}, "");
  }
  void Write(size_t region, size_t offset, const std::string& data) override {
    SKEIN_CHECK(Ask({'w', region, offset, data.size()}, data) == "ok");
  }
  void Kill() override {
    kill(pid_, SIGKILL);
    Reap();
  }
  void Stop() override {
    kill(pid_, SIGSTOP);
    int status = 0;
    SKEIN_CHECK(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status));
  }
  void Continue() override {
    if (pid_ > 0) kill(pid_, SIGCONT);
  }

 private:
  std::string Ask(const Request& request, const std::string& data) {
    SKEIN_CHECK(SendAll(fd_, &request, sizeof request) && SendAll(fd_, data.data(), data.size()));
    return ReceiveString(fd_);
  }

  void Reap() {
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  pid_t pid_;
  const int fd_;
};

}  // namespace

InProcessTarget::InProcessTarget(std::unique_ptr<Transport> transport,
                                 std::shared_ptr<FarDevice> device)
    : device_(std::move(device)),
      transport_(std::move(transport)),
      own_memory_(device_ == nullptr ? kTargetRegionBytes[1] : 0) {
  auto first = transport_->Register(nullptr, kTargetRegionBytes[0]);
  auto second = transport_->Register(
      device_ == nullptr ? own_memory_.data() : device_->Alloc(kTargetRegionBytes[1]).value(),
      kTargetRegionBytes[1]);
  SKEIN_CHECK(first.ok() && second.ok());
  std::memset(first->base, 0, first->bytes);
  regions_ = {*first, *second};
  progress_ = std::thread([this] {
    std::vector<TransferCompletion> none;
    while (!ending_) transport_->Poll(1, std::chrono::seconds(10), &none);
  });
}

InProcessTarget::~InProcessTarget() { Kill(); }

void InProcessTarget::Kill() {
  if (transport_ == nullptr) return;
  ending_ = true;
  transport_->Wake();
  progress_.join();
  transport_.reset();
}

std::string InProcessTarget::Describe() {
  const RegionId ids[] = {regions_[0].id, regions_[1].id};
  return *transport_->Describe(ids);
}

std::byte* InProcessTarget::Near(size_t region, size_t offset) const {
  std::byte* const place = regions_[region].base + offset;
  return device_ == nullptr ? place : device_->NearOf(place);
}

std::string InProcessTarget::Read(size_t region, size_t offset, size_t bytes) {
  return std::string(reinterpret_cast<const char*>(Near(region, offset)), bytes);
}

void InProcessTarget::Write(size_t region, size_t offset, const std::string& data) {
  std::memcpy(Near(region, offset), data.data(), data.size());
}

std::unique_ptr<TestingTarget> SpawnProcessTarget(const std::string& tls, bool far) {
  int fds[2];
  SKEIN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  // dup2 onto the same number would keep close-on-exec, so the peer's end first moves out of the
  // way.
  const int peers_end = fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
  close(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, peers_end, kPeerFd);
  char path[] = "engine/transport/testing_peer";
  std::string argument = tls;
  char device[] = "far";
  char* const argv[] = {path, argument.data(), far ? device : nullptr, nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(peers_end);
  SKEIN_CHECK_MSG(error == 0, "engine/transport/testing_peer must be in the test's data");
  return std::make_unique<ProcessTarget>(pid, fds[0]);
}

void ServeTarget(TestingTarget* target, int fd) {
  for (Request request; ReceiveAll(fd, &request, sizeof request);) {
    std::string answer = "ok";
    if (request.what == 'd') answer = target->Describe();
    if (request.what == 'r') answer = target->Read(request.region, request.offset, request.bytes);
    if (request.what == 'w') {
      std::string data(request.bytes, '\0');
      if (!ReceiveAll(fd, data.data(), data.size())) return;
      target->Write(request.region, request.offset, data);
    }
    if (!SendString(fd, answer)) return;
  }
}

}  // namespace skein::engine
