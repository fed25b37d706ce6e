// Measures what grants cost (engine/transport/transport.h): a small handoff without and with one,
// and how long a target waits for a grant that it closes, with its writer idle or in the middle of
// a put. Its blocks are nobody's meanwhile. See README.md.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "engine/transport/description.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(bool, own_wires, true,
          "false: UCX carries everything, by RMA where that is truly remote");
ABSL_FLAG(int, rounds, 200, "of each measurement; medians and maxima are printed");
ABSL_FLAG(uint64_t, large_mib, 64, "bytes of a handoff that is cut off");

namespace {

using skein::GrantId;
using skein::engine::DescribeUnder;
using skein::engine::MakeUcxTransport;
using skein::engine::Region;
using skein::engine::RegionId;
using skein::engine::TransferCompletion;
using skein::engine::TransferOp;
using skein::engine::TransferPiece;
using skein::engine::Transport;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kBlockBytes = 32 << 10;  // a piece, and all of a small handoff

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Side {
  std::unique_ptr<Transport> transport;
  Region pool;
};

Side MakeSide(int fill) {
  auto transport = MakeUcxTransport({.own_wires = absl::GetFlag(FLAGS_own_wires)});
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  auto pool = (*transport)->Register(nullptr, absl::GetFlag(FLAGS_large_mib) << 20);
  SKEIN_CHECK_MSG(pool.ok(), pool.status().ToString().c_str());
  std::memset(pool->base, fill, pool->bytes);
  return {*std::move(transport), *pool};
}

// To the writer, with the description behind it.
struct Order {
  GrantId grant;
  uint64_t bytes = 0;
};

// From the writer, when it begins (`ended` false) and when all has ended.
struct Report {
  bool ended = false;
  bool ok = true;
  double us = 0;  // from the description to the last completion
};

void Send(int fd, const Report& report) {
  SKEIN_CHECK(send(fd, &report, sizeof report, 0) == sizeof report);
}

void Write(const Side& side, int fd, const Order& order, const std::string& description) {
  const auto start = Clock::now();
  const auto peer = side.transport->Connect(description);
  SKEIN_CHECK_MSG(peer.ok(), peer.status().ToString().c_str());
  std::vector<TransferPiece> pieces;
  for (uint64_t at = 0; at < order.bytes; at += kBlockBytes) {
    pieces.push_back({side.pool.id, at, peer->regions[0], at, kBlockBytes});
  }
  const auto posted = side.transport->PostUnder(order.grant, peer->id, TransferOp::kPut, pieces,
                                                std::chrono::minutes(1));
  SKEIN_CHECK_MSG(posted.ok(), posted.status().ToString().c_str());
  if (order.bytes > kBlockBytes) Send(fd, {});
  std::vector<TransferCompletion> ended;
  while (ended.empty()) side.transport->Poll(1, std::chrono::minutes(1), &ended);
  Send(fd, {.ended = true, .ok = ended[0].status.ok(), .us = MicrosSince(start)});
}

// The prefill side. Polls on while it waits for an order, as a worker's progress thread does.
[[noreturn]] void RunWriter(int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Side side = MakeSide(2);
  std::vector<TransferCompletion> none;
  std::vector<char> message(1 << 20);
  for (;;) {
    const ssize_t size = recv(fd, message.data(), message.size(), MSG_DONTWAIT);
    if (size < static_cast<ssize_t>(sizeof(Order))) {
      side.transport->Poll(1, std::chrono::microseconds(200), &none);
      continue;
    }
    Order order;
    std::memcpy(&order, message.data(), sizeof order);
    Write(side, fd, order,
          std::string(message.data() + sizeof order, static_cast<size_t>(size) - sizeof order));
  }
}

// The decode side.
class Target {
 public:
  explicit Target(int fd) : fd_(fd), side_(MakeSide(1)) {
    const RegionId ids[] = {side_.pool.id};
    description_ = *side_.transport->Describe(ids);
    progress_ = std::thread([this] { Progress(); });
  }
  ~Target() {
    stopping_ = true;
    side_.transport->Wake();
    progress_.join();
  }

  GrantId Open() {
    const GrantId grant{++grants_};
    side_.transport->OpenGrant(grant);
    return grant;
  }
  void Let(GrantId grant, uint64_t bytes) {
    const Order order = {grant, bytes};
    std::string message(reinterpret_cast<const char*>(&order), sizeof order);
    message += grant.value == 0 ? description_ : DescribeUnder(description_, grant);
    SKEIN_CHECK(send(fd_, message.data(), message.size(), 0) ==
                static_cast<ssize_t>(message.size()));
  }
  Report Hear() {
    Report report;
    SKEIN_CHECK(recv(fd_, &report, sizeof report, 0) == sizeof report);
    return report;
  }
  // Until the blocks under it may be another's, in us.
  double Close(GrantId grant) {
    const auto start = Clock::now();
    side_.transport->CloseGrant(grant);
    closed_.wait(grant.value - 1);
    SKEIN_CHECK(closed_ == grant.value);
    return MicrosSince(start);
  }

 private:
  void Progress() {
    std::vector<TransferCompletion> none;
    while (!stopping_) {
      side_.transport->Poll(16, std::chrono::milliseconds(100), &none);
      for (const GrantId grant : side_.transport->TakeClosed()) {
        closed_ = grant.value;
        closed_.notify_all();
      }
    }
  }

  const int fd_;
  const Side side_;
  std::string description_;
  uint64_t grants_ = 0;
  std::atomic<uint64_t> closed_{0};  // the latest: one after the other
  std::atomic<bool> stopping_{false};
  std::thread progress_;
};

void Print(const char* what, std::vector<double> us) {
  SKEIN_CHECK(!us.empty());
  std::sort(us.begin(), us.end());
  std::printf("%-34s median %8.1f us  p90 %8.1f us  max %8.1f us  (%zu)\n", what, us[us.size() / 2],
              us[us.size() * 9 / 10], us.back(), us.size());
}

void MeasureSmall(Target* target) {
  std::vector<double> without, with, close;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    target->Let(GrantId{}, kBlockBytes);
    without.push_back(target->Hear().us);
    const GrantId grant = target->Open();
    target->Let(grant, kBlockBytes);
    const Report report = target->Hear();
    SKEIN_CHECK(report.ok);
    with.push_back(report.us);
    close.push_back(target->Close(grant));
  }
  Print("handoff of 32 KiB without a grant", without);
  Print("handoff of 32 KiB under a grant", with);
  Print("close: the writer has finished", close);
}

void MeasureCutOff(Target* target) {
  std::mt19937 random(16);
  std::vector<double> close;
  int whole = 0;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    const GrantId grant = target->Open();
    target->Let(grant, absl::GetFlag(FLAGS_large_mib) << 20);
    SKEIN_CHECK(!target->Hear().ended);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    const double us = target->Close(grant);
    const bool cut_off = !target->Hear().ok;
    if (cut_off) close.push_back(us);
    whole += !cut_off;
  }
  Print("close: the writer is in a put", close);
  if (whole > 0) std::printf("%d handoffs had ended before\n", whole);
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  int fds[2];
  SKEIN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
  const pid_t writer = fork();  // before UCX starts in either
  if (writer == 0) {
    close(fds[0]);
    RunWriter(fds[1]);
  }
  close(fds[1]);
  {
    Target target(fds[0]);
    MeasureSmall(&target);
    MeasureCutOff(&target);
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
}
