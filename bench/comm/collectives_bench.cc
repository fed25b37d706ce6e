// Latency and bandwidth of collectives between processes, beside the memcpy of the same bytes by
// the same processes at once. Prints a line per collective and size:
//   OPERATION RANKS BYTES MICROSECONDS MEMCPY_MICROSECONDS CPU_MICROSECONDS MEMCPY_CPU_MICROSECONDS
// CPU time is rank 0's; unlike the others it tells something on a machine that is not quiet.
// BYTES is one rank's buffer: of AllReduce the data, of AllGather and ReduceScatter the whole, of
// AllToAll all that a rank sends (itself included), of SendRecv and Broadcast the message.
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/model/group/group_contexts.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(int, ranks, 2, "processes");

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSizes[] = {1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20};
constexpr int64_t kBytesMax = 16 << 20;

CommDeadline Later() { return Clock::now() + std::chrono::minutes(2); }

void Check(const absl::Status& status) { SKEIN_CHECK_MSG(status.ok(), status.ToString().c_str()); }

struct Operation {
  const char* name;
  // The share of a buffer that a rank sends and receives, in and out of its own memory.
  std::function<double(int ranks)> traffic;
  std::function<absl::Status(Communicator*, std::byte* in, std::byte* out, int64_t bytes)> run;
};

double Shares(int n) { return static_cast<double>(n - 1) / n; }

absl::Status RunAllToAll(Communicator* comm, std::byte* in, std::byte* out, int64_t bytes) {
  const int64_t part = bytes / comm->Size();
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int r = 0; r < comm->Size(); ++r) {
    send.emplace_back(in + r * part, part);
    receive.emplace_back(out + r * part, part);
  }
  return comm->AllToAll(send, receive, Later());
}

absl::Status RunRing(Communicator* comm, std::byte* in, std::byte* out, int64_t bytes) {
  const int n = comm->Size(), rank = comm->Rank();
  const size_t size = static_cast<size_t>(bytes);
  return comm->SendRecv({in, size}, (rank + 1) % n, {out, size}, (rank + n - 1) % n, Later());
}

std::vector<Operation> Operations() {
  return {
      {"AllReduce", [](int n) { return 4 * Shares(n); },
       [](Communicator* comm, std::byte* in, std::byte*, int64_t bytes) {
         return comm->AllReduce(in, bytes / 2, DType::kBF16, Later());
       }},
      {"AllGather", [](int n) { return 2 * Shares(n); },
       [](Communicator* comm, std::byte* in, std::byte* out, int64_t bytes) {
         const size_t part = static_cast<size_t>(bytes / comm->Size());
         return comm->AllGather({in, part}, {out, part * comm->Size()}, Later());
       }},
      {"ReduceScatter", [](int n) { return 2 * Shares(n); },
       [](Communicator* comm, std::byte* in, std::byte* out, int64_t bytes) {
         return comm->ReduceScatter(in, out, bytes / 2 / comm->Size(), DType::kBF16, Later());
       }},
      {"AllToAll", [](int n) { return 2 * Shares(n); }, RunAllToAll},
      {"SendRecv", [](int) { return 2.0; }, RunRing},
      {"Broadcast", [](int) { return 1.0; },
       [](Communicator* comm, std::byte* in, std::byte*, int64_t bytes) {
         return comm->Broadcast({in, static_cast<size_t>(bytes)}, 0, Later());
       }},
  };
}

// All ranks are here, and start together.
void Barrier(Communicator* comm) { Check(comm->AllReduce(nullptr, 0, DType::kF32, Later())); }

double CpuMicros() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Cost {
  double us = 0;
  double cpu_us = 0;
};

// The time of one call, from a common start until the last rank is done.
Cost Measure(Communicator* comm, int calls, const std::function<void()>& call) {
  call();
  Barrier(comm);
  const auto start = Clock::now();
  const double cpu_start = CpuMicros();
  for (int i = 0; i < calls; ++i) call();
  Barrier(comm);
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  return {us / calls, (CpuMicros() - cpu_start) / calls};
}

void MeasureAll(Communicator* comm) {
  std::vector<std::byte> in(kBytesMax), out(kBytesMax);
  for (const Operation& operation : Operations()) {
    for (const int64_t bytes : kSizes) {
      const int calls = static_cast<int>(std::clamp<int64_t>((64 << 20) / bytes, 6, 2000));
      const Cost cost =
          Measure(comm, calls, [&] { Check(operation.run(comm, in.data(), out.data(), bytes)); });
      // As many bytes as the rank sends and receives, once for each copy of a wire with two.
      const auto copied = static_cast<size_t>(operation.traffic(comm->Size()) * bytes / 2);
      const Cost copy = Measure(comm, calls, [&] {
        for (int half = 0; half < 2; ++half) {
          for (size_t at = 0; at < copied; at += kBytesMax) {
            std::memcpy(out.data(), in.data(), std::min<size_t>(kBytesMax, copied - at));
          }
          asm volatile("" : : "r"(out.data()) : "memory");
        }
      });
      if (comm->Rank() == 0) {
        std::printf("%s %d %lld %.2f %.2f %.2f %.2f\n", operation.name, comm->Size(),
                    static_cast<long long>(bytes), cost.us, copy.us, cost.cpu_us, copy.cpu_us);
      }
    }
  }
}

void MeasureTake(const GroupContexts& contexts, int rank, int ranks) {
  if (rank != 0) return;
  constexpr int kTakes = 1000000;
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  const auto start = Clock::now();
  for (int i = 0; i < kTakes; ++i) Check(contexts.Take(members).status());
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  std::printf("take %d %.1f\n", ranks, ns / kTakes);
}

// All ranks' addresses, by way of the parent.
std::vector<std::string> Exchange(int fd, const std::string& own, int ranks) {
  SKEIN_CHECK(send(fd, own.data(), own.size(), 0) == static_cast<ssize_t>(own.size()));
  std::vector<std::string> addresses;
  for (int r = 0; r < ranks; ++r) {
    std::string address(1 << 16, '\0');
    address.resize(std::max<ssize_t>(0, recv(fd, address.data(), address.size(), 0)));
    addresses.push_back(address);
  }
  return addresses;
}

void RunRank(int fd, int rank, int ranks) {
  auto fabric = MakeUcxFabric({});
  Check(fabric.status());
  const auto addresses = Exchange(fd, (*fabric)->Address(), ranks);
  const auto start = Clock::now();
  std::promise<absl::Status> made;
  GroupContexts contexts(
      fabric->get(), fabric->get(),
      {.made = [&made](uint64_t, const absl::Status& status) { made.set_value(status); }});
  Check(contexts.Make({1, addresses, rank}));
  Check(made.get_future().get());
  const double make_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  if (rank == 0) std::printf("make %d %.1f\n", ranks, make_us);
  MeasureTake(contexts, rank, ranks);
  std::vector<int> members;
  for (int r = 0; r < ranks; ++r) members.push_back(r);
  const auto context = contexts.Take(members);
  Check(context.status());
  MeasureAll((*context)->Part({1, ranks}, Later()).all);
}

// Children before UCX starts; the parent only passes addresses on.
int Main(int ranks) {
  std::vector<int> fds;
  for (int rank = 0; rank < ranks; ++rank) {
    int pair[2];
    SKEIN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    if (fork() == 0) {
      RunRank(pair[1], rank, ranks);
      std::fflush(stdout);
      _exit(0);
    }
    close(pair[1]);
    fds.push_back(pair[0]);
  }
  std::vector<std::string> addresses;
  for (const int fd : fds) {
    std::string address(1 << 16, '\0');
    address.resize(std::max<ssize_t>(0, recv(fd, address.data(), address.size(), 0)));
    addresses.push_back(address);
  }
  for (const int fd : fds) {
    for (const auto& address : addresses) send(fd, address.data(), address.size(), MSG_NOSIGNAL);
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed |= status;
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  absl::ParseCommandLine(argc, argv);
  return skein::engine::Main(absl::GetFlag(FLAGS_ranks));
}
