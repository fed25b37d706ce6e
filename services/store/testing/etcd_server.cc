#include "services/store/testing/etcd_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "scheduler/vocabulary/check.h"
#include "services/store/etcd_calls.h"
#include "services/store/etcd_range.h"

namespace skein::services {
namespace {

std::string Url(int port) { return absl::StrCat("http://127.0.0.1:", port); }

// In the child, between fork and exec: nothing but system calls.
[[noreturn]] void Become(const std::vector<char*>& arguments, const char* log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(out, 1);
  dup2(out, 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SKEIN_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

std::string EtcdServer::Program() {
  const char* const path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/bin" : path;
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(absl::StrCat(folders, ":/usr/bin"), ':'))) {
    std::string program = folder + "/etcd";
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

std::string EtcdServer::WhyNot() {
  return Program().empty() ? "there is no etcd on this machine (Debian: etcd-server)" : "";
}

absl::StatusOr<std::unique_ptr<EtcdServer>> EtcdServer::Start(const std::string& folder) {
  absl::Status status;
  // Another program may take a port before etcd does.
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::unique_ptr<EtcdServer> server(new EtcdServer(folder, FreePort(), FreePort()));
    status = server->Spawn();
    if (status.ok()) return server;
  }
  return status;
}

EtcdServer::EtcdServer(std::string folder, int client_port, int peer_port)
    : folder_(std::move(folder)), client_port_(client_port), peer_port_(peer_port) {}
EtcdServer::~EtcdServer() { Kill(); }

std::string EtcdServer::endpoint() const { return absl::StrCat("127.0.0.1:", client_port_); }

absl::Status EtcdServer::StartAgain() { return Spawn(); }

absl::Status EtcdServer::Spawn() {
  const std::string log = folder_ + "/log";
  std::vector<std::string> words = {Program(),
                                    "--name=one",
                                    "--data-dir=" + folder_ + "/data",
                                    "--listen-client-urls=" + Url(client_port_),
                                    "--advertise-client-urls=" + Url(client_port_),
                                    "--listen-peer-urls=" + Url(peer_port_),
                                    "--initial-advertise-peer-urls=" + Url(peer_port_),
                                    "--initial-cluster=one=" + Url(peer_port_),
                                    "--heartbeat-interval=50",
                                    "--election-timeout=500"};
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  process_ = fork();
  if (process_ < 0) return absl::UnavailableError("cannot fork");
  if (process_ == 0) Become(arguments, log.c_str());
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < until) {
    if (waitpid(process_, nullptr, WNOHANG) == process_) {
      process_ = 0;
      return absl::UnavailableError("etcd has ended; see " + log);
    }
    if (Serves()) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Kill();
  return absl::DeadlineExceededError("etcd does not serve; see " + log);
}

bool EtcdServer::Serves() const {
  EtcdCalls calls({endpoint()});
  return ReadEtcdRange(&calls, "x", "", 2'000'000).ok();
}

void EtcdServer::Stop() const {
  kill(process_, SIGSTOP);
  waitpid(process_, nullptr, WUNTRACED);
}

void EtcdServer::GoOn() const { kill(process_, SIGCONT); }

void EtcdServer::Kill() {
  if (process_ == 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = 0;
}

}  // namespace skein::services
