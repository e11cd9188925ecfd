# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# An nginx that gives DIR/www at http://127.0.0.1:8080 and https://127.0.0.1:8443, with the certificate DIR/ca.pem. The
# caller has tap.sh, a network namespace of its own, and ends what is started here with it.

# Standard input is the rest of the server's configuration, HTTP-LINE something of http's.
configure_nginx() { # DIR HTTP-LINE
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$1/key.pem" -out "$1/ca.pem" 2> /dev/null
  # One process, so that a kill ends it.
  cat > "$1/nginx.conf" << END
daemon off;
master_process off;
user root;
pid $1/nginx.pid;
events {}
http {
  client_body_temp_path $1; proxy_temp_path $1; fastcgi_temp_path $1; uwsgi_temp_path $1; scgi_temp_path $1;
  types {}
  $2
  server {
    listen 127.0.0.1:8080;
    listen 127.0.0.1:8443 ssl;
    ssl_certificate $1/ca.pem;
    ssl_certificate_key $1/key.pem;
    root $1/www;
$(cat)
  }
}
END
}

# Its process is $nginx.
start_nginx() { # DIR
  nginx -p "$1" -c "$1/nginx.conf" -e stderr > "$1/nginx.log" 2>&1 &
  # shellcheck disable=SC2034  # for who kills it
  nginx=$!
  poll 10 curl --silent --output /dev/null http://127.0.0.1:8080/
}
