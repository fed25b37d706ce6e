#include "engine/transport/testing/target.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/transport/description.h"
#include "scheduler/vocabulary/check.h"

extern char** environ;

namespace skein::engine {
namespace {

constexpr int kPeerFd = 3;
constexpr size_t kGapBytes = 4096 + 256;
constexpr size_t kAllocationBytes = kTargetRegionBytes[0] + kTargetRegionBytes[1] + 2 * kGapBytes;

struct Request {
  // 'd'escribe, 'r'ead, 'w'rite; of the grant in `offset`: 'o'pen, 'c'lose, 'i's it closed, wait
  // 'u'ntil it is
  char what = 0;
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
  std::string DescribeUnder(GrantId grant) override { return Ask({'o', 0, grant.value, 0}, ""); }
  void CloseGrant(GrantId grant) override { Ask({'c', 0, grant.value, 0}, ""); }
  bool IsClosed(GrantId grant) override { return Ask({'i', 0, grant.value, 0}, "") == "yes"; }
  void WaitUntilClosed(GrantId grant) override { Ask({'u', 0, grant.value, 0}, ""); }
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

// The other end of SpawnProcessTarget: until end of file.
void ServeTarget(TestingTarget* target, int fd) {
  for (Request request; ReceiveAll(fd, &request, sizeof request);) {
    std::string answer = "ok";
    if (request.what == 'd') answer = target->Describe();
    if (request.what == 'r') answer = target->Read(request.region, request.offset, request.bytes);
    const GrantId grant{request.offset};
    if (request.what == 'o') answer = target->DescribeUnder(grant);
    if (request.what == 'c') target->CloseGrant(grant);
    if (request.what == 'i') answer = target->IsClosed(grant) ? "yes" : "no";
    if (request.what == 'u') target->WaitUntilClosed(grant);
    if (request.what == 'w') {
      std::string data(request.bytes, '\0');
      if (!ReceiveAll(fd, data.data(), data.size())) return;
      target->Write(request.region, request.offset, data);
    }
    if (!SendString(fd, answer)) return;
  }
}

}  // namespace

InProcessTarget::InProcessTarget(std::unique_ptr<Transport> transport,
                                 std::shared_ptr<Device> device, TargetMemory memory)
    : device_(std::move(device)), memory_(memory), transport_(std::move(transport)) {
  SKEIN_CHECK((device_ == nullptr) == (memory == TargetMemory::kHost));
  for (const size_t region : {0u, 1u}) {
    const auto registered = transport_->Register(Place(region), kTargetRegionBytes[region]);
    SKEIN_CHECK(registered.ok());
    regions_.push_back(*registered);
  }
  progress_ = std::thread([this] {
    std::vector<TransferCompletion> none;
    while (!ending_) {
      transport_->Poll(1, std::chrono::seconds(10), &none);
      const std::vector<GrantId> closed = transport_->TakeClosed();
      std::lock_guard lock(mutex_);
      closed_.insert(closed.begin(), closed.end());
      if (!closed.empty()) some_closed_.notify_all();
    }
  });
}

bool InProcessTarget::IsOnDevice(size_t region) const {
  if (memory_ == TargetMemory::kHostAndDevice) return region == 1;
  if (memory_ == TargetMemory::kDeviceAndHost) return region == 0;
  return memory_ == TargetMemory::kAllocation;
}

// Null: the transport allocates.
std::byte* InProcessTarget::Place(size_t region) {
  if (!IsOnDevice(region)) {
    if (region == 0) return nullptr;
    own_memory_.resize(kTargetRegionBytes[1]);
    return own_memory_.data();
  }
  const bool together = memory_ == TargetMemory::kAllocation;
  const size_t bytes = together ? kAllocationBytes : kTargetRegionBytes[region];
  if (!together || allocation_ == nullptr) {
    allocation_ = static_cast<std::byte*>(device_->Alloc(bytes).value());
    SKEIN_CHECK(device_->Synchronize().ok());  // it is zero now
  }
  if (!together) return allocation_;
  return allocation_ + kGapBytes + (region == 1 ? 0 : kTargetRegionBytes[1]);
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

std::string InProcessTarget::DescribeUnder(GrantId grant) {
  transport_->OpenGrant(grant);
  return engine::DescribeUnder(Describe(), grant);
}

bool InProcessTarget::IsClosed(GrantId grant) {
  std::lock_guard lock(mutex_);
  return closed_.contains(grant);
}

void InProcessTarget::WaitUntilClosed(GrantId grant) {
  std::unique_lock lock(mutex_);
  some_closed_.wait(lock, [&] { return closed_.contains(grant); });
  closed_.erase(grant);
}

std::string InProcessTarget::Read(size_t region, size_t offset, size_t bytes) {
  const std::byte* const place = regions_[region].base + offset;
  std::string data(bytes, '\0');
  if (!IsOnDevice(region)) {
    std::memcpy(data.data(), place, bytes);
    return data;
  }
  SKEIN_CHECK(device_->Copy(data.data(), place, bytes, CopyKind::kDeviceToHost).ok());
  SKEIN_CHECK(device_->Synchronize().ok());
  return data;
}

void InProcessTarget::Write(size_t region, size_t offset, const std::string& data) {
  std::byte* const place = regions_[region].base + offset;
  if (!IsOnDevice(region)) {
    std::memcpy(place, data.data(), data.size());
    return;
  }
  SKEIN_CHECK(device_->Copy(place, data.data(), data.size(), CopyKind::kHostToDevice).ok());
  SKEIN_CHECK(device_->Synchronize().ok());
}

std::unique_ptr<TestingTarget> SpawnProcessTarget(const std::string& tls, TargetMemory memory,
                                                  const std::string& peer) {
  int fds[2];
  SKEIN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  // dup2 onto the same number would keep close-on-exec, so the peer's end first moves out of the
  // way.
  const int peers_end = fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
  close(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, peers_end, kPeerFd);
  std::string words[] = {peer, tls, std::to_string(static_cast<int>(memory))};
  char* const argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, peer.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(peers_end);
  SKEIN_CHECK_MSG(error == 0, (peer + " must be in the test's data").c_str());
  return std::make_unique<ProcessTarget>(pid, fds[0]);
}

int RunTestingPeer(int argc, char** argv, const MakePeerParts& make) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SKEIN_CHECK(argc == 3);
  const auto memory = static_cast<TargetMemory>(std::atoi(argv[2]));
  PeerParts parts = make(argv[1], memory);
  InProcessTarget target(std::move(parts.transport), std::move(parts.device), memory);
  ServeTarget(&target, kPeerFd);
  return 0;
}

}  // namespace skein::engine
