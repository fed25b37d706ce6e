#include "services/orchestrator/worker_dials.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

// A port of this host that is bound, so that nobody else listens there: it refuses connections
// until it listens.
class Port {
 public:
  Port() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Port() { close(fd_); }
  void Listen() { EXPECT_EQ(listen(fd_, 8), 0); }
  void Accept() { close(accept(fd_, nullptr, nullptr)); }
  const std::string& endpoint() const { return endpoint_; }

 private:
  const int fd_;
  std::string endpoint_;
};

scheduler::DialWorker At(uint64_t instance, const std::string& endpoint) {
  return {{instance}, {instance}, endpoint};
}

TEST(WorkerDialsTest, ARefusedConnectionIsToldAtOnceAndAgainWithEachTry) {
  const Port port;
  std::promise<int64_t> first_us;
  std::promise<void> last;
  size_t told = 0;
  const int64_t asked_us = MonotonicUs();
  WorkerDials dials([&](const scheduler::DialWorker& worker) {
    EXPECT_EQ(worker.instance.value, 5u);
    EXPECT_EQ(worker.endpoint, port.endpoint());
    if (++told == 1) first_us.set_value(MonotonicUs());
    if (told == WorkerDials::kTriesUs.size()) last.set_value();
  });
  dials.Dial(At(5, port.endpoint()));
  EXPECT_GE(first_us.get_future().get(), asked_us);
  last.get_future().get();
  EXPECT_GE(MonotonicUs() - asked_us, WorkerDials::kTriesUs.back());
  dials.Stop();
  EXPECT_EQ(told, WorkerDials::kTriesUs.size());
}

// What is not an address, does not resolve or accepts says nothing; others are not kept waiting.
TEST(WorkerDialsTest, OnlyARefusalIsTold) {
  Port listens;
  listens.Listen();
  const Port refuses;
  std::promise<void> refused;
  std::vector<std::string> told;
  WorkerDials dials([&](const scheduler::DialWorker& worker) {
    told.push_back(worker.endpoint);
    if (told.size() == 1) refused.set_value();
  });
  dials.Dial(At(1, "unix:/nowhere"));
  dials.Dial(At(2, "host.invalid:1"));
  dials.Dial(At(3, listens.endpoint()));
  listens.Accept();
  dials.Dial(At(4, refuses.endpoint()));
  refused.get_future().get();
  dials.Stop();
  for (const std::string& endpoint : told) EXPECT_EQ(endpoint, refuses.endpoint());
}

TEST(WorkerDialsTest, AfterItsStopNothingIsDialled) {
  const Port port;
  WorkerDials dials([](const scheduler::DialWorker&) { FAIL() << "it has stopped"; });
  dials.Stop();
  dials.Dial(At(1, port.endpoint()));
  dials.Stop();
}

}  // namespace
}  // namespace skein::services
