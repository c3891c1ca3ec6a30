#pragma once

#include <string>

#include "../adapter_source.hpp"

namespace split {

/// Adapters in S3-compatible object storage, by requests of single objects, signed (AWS Signature Version 4)
/// if there is a key. Where and who we are there says the environment, as for other clients of S3:
/// AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_CA_BUNDLE. Redirections
/// are not followed.
class s3_adapters final : public adapter_source {
  public:
    /// @param root  s3://BUCKET/PREFIX, or without a prefix
    /// @throws parameter_error for any other, or an endpoint without TLS but on this machine
    explicit s3_adapters(const std::string& root);

    /// Its form alone: nobody is asked.
    void check(const std::string& directory) const override;
    /// @throws io_error also for any answer but the whole object, and a server that is silent for 30 s
    tensafe::lora::adapter read(const std::string& directory,
                                const tensafe::keystore::signature_policy* must_be,
                                const std::stop_token& stop) const override;

  private:
    std::string base_;       ///< a URL, up to the slash before a directory
    std::string signature_;  ///< as CURLOPT_AWS_SIGV4
    std::string key_id_;     ///< empty: nothing is signed
    std::string secret_;
    std::string certificates_;  ///< a file of those that are trusted; empty: the system's
};

}  // namespace split
