// EtcdServer: a real etcd of one member for a test, in a folder and on ports of its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace skein::services {

class EtcdServer {
 public:
  // Where the program `etcd` is, by PATH, or "".
  static std::string Program();
  // "" if there is an etcd; else why a test is skipped.
  static std::string WhyNot();

  // Starts it and waits until it serves. `folder` is made.
  static absl::StatusOr<std::unique_ptr<EtcdServer>> Start(const std::string& folder);
  // Kills it.
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  // HOST:PORT
  std::string endpoint() const;

  void Kill();
  // On the same ports, with what it had stored.
  absl::Status StartAgain();
  // It stands still (SIGSTOP) when this returns, until GoOn.
  void Stop() const;
  void GoOn() const;

 private:
  EtcdServer(std::string folder, int client_port, int peer_port);
  absl::Status Spawn();
  bool Serves() const;

  const std::string folder_;
  const int client_port_;
  const int peer_port_;
  pid_t process_ = 0;  // 0: none
};

// A port of 127.0.0.1 that was free just now.
int FreePort();

}  // namespace skein::services
