// The process behind RankProcess: rank <UCX_TLS>, commands on descriptor 3. Addresses are
// told in hexadecimal.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/comm/ucx/ucx_fabric.h"

namespace skein::engine {
namespace {

constexpr int64_t kCount = 100003;  // floats a rank

bool Tell(const std::string& line) {
  const std::string text = line + "\n";
  return send(3, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::string CodeOf(const absl::Status& status) { return absl::StatusCodeToString(status.code()); }

absl::Status Round(Communicator* comm, std::chrono::milliseconds patience) {
  const int n = comm->Size(), rank = comm->Rank();
  const auto deadline = [&] { return std::chrono::steady_clock::now() + patience; };
  std::vector<float> data(kCount, 1.0f), all(kCount * n), one(kCount);
  auto status = comm->AllReduce(data.data(), kCount, DType::kF32, deadline());
  if (status.ok()) {
    status = comm->AllGather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(all)),
                             deadline());
  }
  if (status.ok()) {
    status = comm->ReduceScatter(all.data(), one.data(), kCount, DType::kF32, deadline());
  }
  if (status.ok()) {
    status =
        comm->SendRecv(std::as_bytes(std::span(one)), (rank + 1) % n,
                       std::as_writable_bytes(std::span(data)), (rank + n - 1) % n, deadline());
  }
  if (status.ok()) status = comm->Broadcast(std::as_writable_bytes(std::span(one)), 0, deadline());
  if (!status.ok()) return status;
  for (const float value : data) {
    if (value != static_cast<float>(n * n)) return absl::DataLossError("a wrong sum");
  }
  return status;
}

class Server {
 public:
  explicit Server(std::unique_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}

  bool Serve(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    return command == "join" ? Join(&words) : Work(&words);
  }

 private:
  bool Join(std::istringstream* words) {
    GroupId id;
    int rank = 0;
    *words >> id.low >> rank;
    std::vector<std::string> addresses;
    for (std::string word; *words >> word;) addresses.push_back(absl::HexStringToBytes(word));
    auto comm = fabric_->MakeGroup(id, addresses, rank);
    if (comm.ok()) comm_ = *std::move(comm);
    return Tell(CodeOf(comm.status()));
  }

  bool Work(std::istringstream* words) {
    int rounds = 0, patience_ms = 0;
    *words >> rounds >> patience_ms;
    absl::Status status;
    for (int i = 0; status.ok() && (rounds == 0 || i < rounds); ++i) {
      status = Round(comm_.get(), std::chrono::milliseconds(patience_ms));
      if (i == 0 && !Tell("first")) return false;
    }
    return Tell(CodeOf(status));
  }

  const std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Communicator> comm_;
};

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  skein::engine::UcxOptions options;
  if (argc > 1) options.tls = argv[1];
  auto fabric = skein::engine::MakeUcxFabric(options);
  if (!fabric.ok()) {
    std::fprintf(stderr, "%s\n", fabric.status().ToString().c_str());
    return 1;
  }
  if (!skein::engine::Tell(absl::BytesToHexString((*fabric)->Address()))) return 1;
  skein::engine::Server server(*std::move(fabric));
  FILE* const commands = fdopen(3, "r");
  std::string line(1 << 16, '\0');
  while (std::fgets(line.data(), static_cast<int>(line.size()), commands) != nullptr) {
    if (!server.Serve(line.c_str())) return 1;
  }
  return 0;
}
