// Peers that do not keep to the protocol. The only test code that names ZeroMQ.
#pragma once

#include <string>
#include <vector>

namespace capstan {

// A ZeroMQ DEALER that sends whatever parts it is told to.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void Send(const std::vector<std::string>& parts);
  // A part that is announced as one of several; the message never ends.
  void SendUnfinished(const std::string& part);

 private:
  void* context_;
  void* socket_;
};

// A plain TCP socket that writes `bytes` to tcp://127.0.0.1:`port` and waits until the other side closes.
// False: it did not close within 10 s.
bool WriteGarbageUntilClosed(int port, const std::string& bytes);

// Binds a Unix socket at `path` and leaves the file behind, as a server does that is killed.
void LeaveStaleIpcFile(const std::string& path);

// A TCP server that is not one of ours: accepts once, writes `bytes`, closes.
class ForeignServer {
 public:
  explicit ForeignServer(int port);
  ~ForeignServer();
  ForeignServer(const ForeignServer&) = delete;
  ForeignServer& operator=(const ForeignServer&) = delete;
  void AnswerOnce(const std::string& bytes);

 private:
  int fd_;
};

}  // namespace capstan
