#include "services/orchestrator/worker_dials.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <map>
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
  const std::string& endpoint() const { return endpoint_; }

 private:
  const int fd_;
  std::string endpoint_;
};

// Its stream broke.
scheduler::DialWorker At(uint64_t instance, const std::string& endpoint) {
  return {{instance}, {instance}, endpoint, /*broke=*/true};
}

TEST(WorkerDialsTest, ARefusedConnectionIsToldAtOnceAndAgainWithEachTry) {
  const Port port;
  std::promise<int64_t> first_us;
  std::promise<void> last;
  size_t told = 0;
  const int64_t asked_us = MonotonicUs();
  WorkerDials dials([&](const scheduler::WorkerDialled& dialled) {
    EXPECT_EQ(dialled.instance.value, 5u);
    EXPECT_EQ(dialled.incarnation.value, 5u);
    EXPECT_FALSE(dialled.accepted);
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

// What is not an address or does not resolve says nothing, and keeps nobody waiting. A worker that
// has come is dialled once.
TEST(WorkerDialsTest, AnAddressThatAcceptsIsTold) {
  Port listens;
  listens.Listen();
  const Port refuses;
  std::promise<void> both;
  std::map<uint64_t, std::vector<bool>> told;
  WorkerDials dials([&](const scheduler::WorkerDialled& dialled) {
    told[dialled.instance.value].push_back(dialled.accepted);
    if (told[3].size() == 1 && told[4].size() == 1) both.set_value();
  });
  for (scheduler::DialWorker worker : {At(1, "unix:/nowhere"), At(2, "not an address"),
                                       At(3, listens.endpoint()), At(4, refuses.endpoint())}) {
    worker.broke = false;
    dials.Dial(worker);
  }
  both.get_future().get();
  dials.Stop();
  EXPECT_EQ(told[3], std::vector<bool>{true});
  EXPECT_EQ(told[4], std::vector<bool>{false});
  EXPECT_TRUE(told[1].empty() && told[2].empty());
}

// As when a new leader is told of all workers of a large cluster.
TEST(WorkerDialsTest, ManyAreDialledAFewAtATime) {
  const Port port;
  constexpr size_t kMany = 3 * WorkerDials::kAtOnceMax;
  std::promise<void> all;
  size_t told = 0;
  WorkerDials dials([&](const scheduler::WorkerDialled&) {
    if (++told == kMany) all.set_value();
  });
  for (uint64_t instance = 1; instance <= kMany; ++instance) {
    dials.Dial({{instance}, {instance}, port.endpoint(), /*broke=*/false});
  }
  all.get_future().get();
}

TEST(WorkerDialsTest, AfterItsStopNothingIsDialled) {
  const Port port;
  WorkerDials dials([](const scheduler::WorkerDialled&) { FAIL() << "it has stopped"; });
  dials.Stop();
  dials.Dial(At(1, port.endpoint()));
  dials.Stop();
}

}  // namespace
}  // namespace skein::services
